"""Speed, as ratios in one run on one machine: ours beside a peer or a raw limit."""
