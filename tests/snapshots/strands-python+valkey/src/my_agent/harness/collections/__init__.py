"""Memory collections: the files that declare where an agent keeps its sessions and memories."""
