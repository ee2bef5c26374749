"""What several protocols share: request, server and worker machines, and their nodes."""
