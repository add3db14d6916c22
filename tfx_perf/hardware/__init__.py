"""The system that the code runs on: devices, peak FLOPs, memory limits, versions."""
