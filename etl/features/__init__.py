"""Feature views: values of images that Spark computes once, by name and version."""
