"""What several tests build with: folders, simulated campaigns, and second ways to compute what calib computes."""
