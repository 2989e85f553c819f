# SPDX-License-Identifier: Apache-2.0
"""A service that appends each output to a list, for a log that nobody reads."""
import berm.torch
import service
import torch

model = service.model()
history = []


def handle(request):
    logits = model(request)
    history.append(logits)  # the mistake: .cpu(), or a bound
    return logits.shape


watch = berm.torch.watch()
for each in service.requests():
    with watch, torch.inference_mode():
        handle(each)
service.tell(watch)
