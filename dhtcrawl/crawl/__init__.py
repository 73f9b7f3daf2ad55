"""The pipeline: how a URL goes from a link to a page. Only this package knows the order."""
