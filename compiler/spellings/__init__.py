"""Other ways of writing a quantized network, rewritten into QuantizeLinear and DequantizeLinear."""
