"""What is measured along a training: memory, FLOPs, what the hardware would like."""
