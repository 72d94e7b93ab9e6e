import os

# JAX compiles what stands around the calls under test in less time where it does not optimise it.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
