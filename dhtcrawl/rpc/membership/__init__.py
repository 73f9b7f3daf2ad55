"""SWIM: who is a member, who is suspected, who is gone; the view that ownership follows."""
