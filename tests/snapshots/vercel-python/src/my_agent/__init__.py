"""An AI agent: `agent` is yours to change, the other modules come from the template."""
