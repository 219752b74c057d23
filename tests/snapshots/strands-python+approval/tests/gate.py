"""The tool word_count waits for a person."""

from strands.vended_interventions.hitl import HumanInTheLoop

GATE = ("app.agent.INTERVENTIONS", [HumanInTheLoop()])
