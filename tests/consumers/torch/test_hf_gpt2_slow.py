# SPDX-License-Identifier: Apache-2.0
"""GPT-2 of Hugging Face's transformers, small, made from a configuration: training, and generate(),
greedy with an end token and with beams. All parameters of the model that generates are small enough
for their values to be kept (berm._values), so its tokens are to be those that the CPU finds."""
import torch_test

BATCH, LENGTH, NEW = 2, 8, 10


def train(child, transformers):
    torch = child.torch
    config = transformers.GPT2Config(vocab_size=1024, n_positions=128, n_embd=192, n_layer=3,
                                     n_head=6)
    model = transformers.GPT2LMHeadModel(config).cuda().train()
    child.mark("model")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(3):
        ids = torch.randint(0, config.vocab_size, (4, 64), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        child.mark(f"training step {step}")


def found(model, ids, **options):
    """The tokens that follow, as lists, and how often the model was called."""
    calls = 0

    def count(*_):
        nonlocal calls
        calls += 1

    hook = model.register_forward_hook(count)
    tokens = model.generate(ids, attention_mask=ids.new_ones(ids.shape), max_new_tokens=NEW,
                            do_sample=False, **options)
    hook.remove()
    return tokens[:, LENGTH:].tolist(), calls


def generate(child, transformers):
    torch = child.torch
    config = transformers.GPT2Config(vocab_size=128, n_positions=32, n_embd=64, n_layer=2,
                                     n_head=4, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = torch.randint(1, config.vocab_size, (BATCH, LENGTH))
    tokens, calls = found(model, ids, eos_token_id=None)
    assert calls == NEW, calls
    # An end token that both sequences reach, but not at once: the loop ends by values.
    ends = [tokens[0][3], tokens[1][5]]
    ways = ({"eos_token_id": ends, "pad_token_id": 0}, {"num_beams": 2, "eos_token_id": ends[:1],
                                                        "pad_token_id": 0})
    wanted = [found(model, ids, **way) for way in ways]
    assert wanted[0][1] < NEW, f"the CPU did not reach {ends} in {tokens}"
    model.cuda()
    for way, expected in zip(ways, wanted):
        got = found(model, ids.cuda(), **way)
        assert got == expected, f"{way}: {got} is found, the CPU finds {expected}"
        child.mark(f"generated {got}")


def program(child):
    import transformers
    transformers.logging.set_verbosity_error()
    train(child, transformers)
    child.mark("trained")
    generate(child, transformers)
    child.mark("end")


if __name__ == "__main__":
    torch_test.need("transformers", "./run shadow-setup --tests")
    torch_test.compare(__file__, program, values="small")
