"""CPUs as targets: machine code through LLVM, segments that run it, and measuring the machine."""
