import torch

# Two xdist workers on two cores: more threads per worker only get in each other's way.
torch.set_num_threads(1)
