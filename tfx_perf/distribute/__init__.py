"""Code for several replicas, workers or devices; imported only where there are several."""
