"""The template's own source: questions, checks, snapshots, releases and texts."""
