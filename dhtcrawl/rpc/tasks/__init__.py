"""The task plane over TCP: frames, messages, credit, connections."""
