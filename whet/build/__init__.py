"""From a graph to native code: where values live, which kernels run, and the run itself."""
