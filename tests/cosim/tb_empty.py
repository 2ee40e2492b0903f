"""cocotb bench without tests, to test `run_bench`."""
