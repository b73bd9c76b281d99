"""Search of kernel configs: space, bounds, ranking, and the driver that evaluates what they leave."""
