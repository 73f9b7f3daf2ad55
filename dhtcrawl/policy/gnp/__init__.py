"""`gnp`: a site's pages are fetched by nodes that are near it in a network coordinate space (Liu et al. 2010)."""
