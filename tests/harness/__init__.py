"""What tests of several rooms share: nodes on a virtual loop, and how much a thing remembers."""
