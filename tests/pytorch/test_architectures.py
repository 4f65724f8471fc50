"""Modules as JAX functions agree with torch: value, gradient, and product by double backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diamond

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
pytest.importorskip("torchax", reason="torchax is not installed: make test-torch")

nn = torch.nn
AGENTS, ROWS = 3, 4
TOLERANCE = 1e-5
# Of transformers, which peft calls.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(4, 6, batch_first=True), nn.Linear(6, 3)

    def forward(self, a):
        return self.head(self.gru(a)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, a):
        return self.head(self.encoder(a).mean(1))


class Logits(nn.Module):
    """The logits of the last token of a causal language model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits[:, -1]


def mlp():
    return nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def cnn(norm):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        norm,
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


def with_statistics():
    """A network whose batch normalization has seen rows, in eval mode."""
    module = cnn(nn.BatchNorm2d(4))
    module(torch.randn(16, 1, 8, 8))
    return module.eval()


def gpt2(attention="eager"):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "n_positions": 16, "vocab_size": 20}
    sizes |= {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(**sizes, attn_implementation=attention)
    return transformers.GPT2LMHeadModel(config).eval()


def llama(attention="eager"):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16,
        attn_implementation=attention,
    )
    return transformers.LlamaForCausalLM(config).eval()


def with_lora(model, layers):
    """The model with LoRA, away from its start, where the second factor is zero."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(
        r=2, lora_alpha=4, target_modules=layers, fan_in_fan_out=layers == ["c_attn"]
    )
    model = peft.get_peft_model(model, config).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.1)
    return model


def dense(*shape):
    return lambda: torch.randn(AGENTS, ROWS, *shape)


def tokens():
    return torch.randint(0, 20, (AGENTS, ROWS, 6))


CASES = {
    "mlp with LayerNorm": (mlp, dense(5)),
    "cnn with GroupNorm": (lambda: cnn(nn.GroupNorm(2, 4)), dense(1, 8, 8)),
    "BatchNorm in eval mode": (with_statistics, dense(1, 8, 8)),
    "GRU": (Gru, dense(5, 4)),
    "TransformerEncoder": (lambda: Encoder().eval(), dense(5, 8)),
    "GPT-2": (lambda: Logits(gpt2()), tokens),
    "GPT-2 sdpa": (lambda: Logits(gpt2("sdpa")), tokens),
    "Llama": (lambda: Logits(llama()), tokens),
    "Llama sdpa": (lambda: Logits(llama("sdpa")), tokens),
    "GPT-2 with LoRA": (lambda: Logits(with_lora(gpt2(), ["c_attn"])), tokens),
    "Llama with LoRA": (lambda: Logits(with_lora(llama("sdpa"), ["q_proj", "v_proj"])), tokens),
}


def torch_answer(module, params, direction, inputs, labels):
    """Value, gradient and product of the Hessian in torch, by double backward."""
    tensors = {name: torch.tensor(np.asarray(a), requires_grad=True) for name, a in params.items()}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # derived twice
        output = torch.func.functional_call(module, tensors, (inputs,), strict=False)
    value = nn.functional.cross_entropy(output, labels)
    leaves = list(tensors.values())
    gradient = torch.autograd.grad(value, leaves, create_graph=True)
    along = sum(
        (g * torch.tensor(np.asarray(direction[n]))).sum() for n, g in zip(tensors, gradient)
    )
    product = torch.autograd.grad(along, leaves)
    flat = lambda parts: np.concatenate([p.detach().numpy().ravel() for p in parts])
    return float(value.detach()), flat(gradient), flat(product)


@pytest.mark.parametrize("name", CASES)
def test_value_gradient_and_product_agree_with_torch(name, float32):
    make, draw = CASES[name]
    torch.manual_seed(0)
    module, inputs = make(), draw()
    labels = torch.randint(0, 3, (AGENTS, ROWS))
    params, apply = diamond.torch.functional(module)
    cross_entropy = diamond.torch.function(nn.functional.cross_entropy)
    generator = np.random.default_rng(0)
    spread = lambda a: jnp.asarray(
        np.asarray(a) + 0.02 * generator.normal(size=(AGENTS, *a.shape)), a.dtype
    )
    points = jax.tree.map(spread, params)
    directions = jax.tree.map(lambda a: spread(0 * a) * 50, params)

    def evaluate(point, direction, inputs, labels):
        loss = lambda p: cross_entropy(apply(p, inputs), labels)
        gradient = jax.grad(loss)
        value, (slope, product) = loss(point), jax.jvp(gradient, (point,), (direction,))
        return value, slope, product

    data = [inputs.numpy(), labels.numpy()]
    values, slopes, products = jax.jit(jax.vmap(evaluate))(points, directions, *data)
    for agent in range(AGENTS):
        select = lambda tree, agent=agent: jax.tree.map(lambda a: a[agent], tree)
        # The order of the leaves is that of the names in the module, not of JAX.
        point = {name: points[name][agent] for name in params}
        value, slope, product = torch_answer(
            module, point, select(directions), inputs[agent], labels[agent]
        )
        flat = lambda tree, agent=agent: np.concatenate(
            [np.ravel(tree[name][agent]) for name in params]
        )
        assert values[agent] == pytest.approx(value, abs=TOLERANCE)
        for ours, theirs in ((flat(slopes), slope), (flat(products), product)):
            assert np.linalg.norm(ours - theirs) <= TOLERANCE * np.linalg.norm(theirs)
            assert np.linalg.norm(theirs) > 1e-3  # the comparison is not of zeros
