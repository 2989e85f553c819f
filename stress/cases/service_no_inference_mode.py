# SPDX-License-Identifier: Apache-2.0
"""A service that records gradients, and sums a figure up: the graph of each request hangs on the sum."""
import berm.torch
import service

model = service.model()


class Figures:
    def __init__(self):
        self.total = 0


figures = Figures()


def handle(request):
    logits = model(request)
    figures.total = figures.total + logits.mean()  # the mistake: .item(), or inference_mode
    return logits.shape


watch = berm.torch.watch()
for each in service.requests():
    with watch:
        handle(each)
print(berm.torch.check(model))
service.tell(watch)
