"""Memory collections: files that declare where an agent stores its sessions and memories."""
