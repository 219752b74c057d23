"""An AI agent: edit the modules in this folder; `harness` comes from the template."""
