"""Speed as ratios in one run on one machine: onthedot compared with a peer or a raw limit."""
