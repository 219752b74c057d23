"""What a cluster is told of the load."""
