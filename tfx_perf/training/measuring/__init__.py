"""What is measured along a training: memory, FLOPs, what the hardware would like."""


def __getattr__(name: str) -> object:
    if name == "meters":
        from tfx_perf.training.measuring import memory

        return memory
    raise AttributeError(name)
