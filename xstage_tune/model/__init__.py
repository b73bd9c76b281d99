"""The X-Stage model: pure equations, numbered as in the paper; numpy in, numpy out."""
