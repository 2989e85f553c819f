# SPDX-License-Identifier: Apache-2.0
"""berm from Python: its allocator under PyTorch, and PyTorch on a simulated CUDA device.

Importing this package loads nothing; the modules say what they need."""
