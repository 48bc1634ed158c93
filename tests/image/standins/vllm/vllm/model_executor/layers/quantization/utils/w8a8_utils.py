"""The line that dockerfiles/vllm_import.py changes."""

import torch

IDENTITY = torch.ones(1).cuda()
