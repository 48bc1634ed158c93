"""verl 0.9.x on CPU, through verl's own extension points: no file of verl is changed.

Loaded in every process by ``VERL_USE_EXTERNAL_MODULES=verl_cpu.platform,verl_cpu.rollout``, which ``verl/__init__.py``
imports; ``VERL_PLATFORM=cpu`` chooses the platform, and ``VERL_ENGINE_DEVICE=cuda`` makes verl's EngineRegistry take
the FSDP engine, which it registers for cuda and npu only. The ``cpu`` image sets all three.

What a run on it does not touch: NCCL, CUDA IPC, flash-attention, sleep mode and CUDA graphs. Its GPUs are declared to
Ray, not real.
"""
