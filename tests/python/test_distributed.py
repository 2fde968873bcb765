"""Several processes: gradients under DistributedDataParallel and fully_shard, and profiles merged over
ranks.  Two processes on the CPU.  Needs PyTorch and transformers."""
import os
import sys
import tempfile
import unittest

from support import ROOT

MISSING = None
try:
    import torch
    import torch.distributed as dist
    import transformers
    from torch.distributed.fsdp import fully_shard
except (ImportError, RuntimeError) as error:
    MISSING = f"PyTorch 2.6 and transformers are needed: {error}"

N_RANKS = 2


def setup():
    """What every process needs, and (model, token ids)."""
    sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests", "python")]
    import classes
    import headlight.transformers as plug
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    model = classes.build(transformers.LlamaForCausalLM, "eager")
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight *= 20.0  # entropies that depend on the weights
    return plug, model, torch.randint(3, 90, (4, 17), generator=torch.Generator().manual_seed(1))


def loss_of(plug, model, ids):
    with plug.Collector() as seen:
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    return loss + plug.EntropyRegularizer(1.0, 10.0)(seen)


def whole(x):
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def gradients(model):
    """By name, without the prefix of DistributedDataParallel."""
    return {name.replace("module.", ""): whole(value.grad).clone() for name, value in model.named_parameters()
            if value.grad is not None}


def work(rank, folder):
    """One process; writes what it found."""
    plug, model, ids = setup()
    import headlight
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=N_RANKS)
    mine, found = ids[rank::N_RANKS], {}
    plug.attach(model)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    loss_of(plug, parallel, mine).backward()
    found["ddp"] = gradients(parallel)
    part = headlight.measure(parallel, token_ids=ids[:3].numpy(), context=17, part=rank, n_parts=N_RANKS)
    found["ddp profile"] = headlight.merge_ranks(part).to_bytes()

    plug, model, ids = setup()
    plug.attach(model)
    for layer in model.model.layers:
        fully_shard(layer, mesh=dist.device_mesh.init_device_mesh("cpu", (N_RANKS,)))
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (N_RANKS,)))
    loss_of(plug, model, mine).backward()
    found["fsdp"] = gradients(model)
    part = headlight.measure(model, token_ids=ids[:3].numpy(), context=17, part=rank, n_parts=N_RANKS)
    found["fsdp profile"] = headlight.merge_ranks(part).to_bytes()
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@unittest.skipIf(MISSING is not None, MISSING)
class Distributed(unittest.TestCase):
    def test_gradients_and_profiles_of_two_ranks(self):
        plug, model, ids = setup()
        import headlight
        plug.attach(model)
        for rank in range(N_RANKS):
            (loss_of(plug, model, ids[rank::N_RANKS]) / N_RANKS).backward()
        wanted = gradients(model)
        profile = headlight.measure(model, token_ids=ids[:3].numpy(), context=17).to_bytes()
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, args=(folder,), nprocs=N_RANKS)
            for rank in range(N_RANKS):
                found = torch.load(f"{folder}/{rank}.pt", weights_only=False)
                for kind in ("ddp", "fsdp"):
                    with self.subTest(kind, rank=rank):
                        self.assertEqual(set(found[kind]), set(wanted))
                        for name, grad in wanted.items():
                            self.assertLess((found[kind][name] - grad).abs().max().item(), 1e-5, name)
                        self.assertEqual(found[kind + " profile"], profile)


if __name__ == "__main__":
    unittest.main()
