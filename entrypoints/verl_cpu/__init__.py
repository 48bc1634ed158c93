"""verl 0.9.x on CPU by verl's extension points, without changes to verl's files.

``verl/__init__.py`` imports the modules in ``VERL_USE_EXTERNAL_MODULES=verl_cpu.platform,verl_cpu.rollout`` in every
process; ``VERL_PLATFORM=cpu`` selects the platform, and ``VERL_ENGINE_DEVICE=cuda`` makes verl's EngineRegistry use the
FSDP engine, which it registers only for cuda and npu. The ``cpu`` image sets all three.

A run on CPU does not cover NCCL, CUDA IPC, flash-attention, sleep mode and CUDA graphs. Its GPUs are only declared to
Ray.
"""
