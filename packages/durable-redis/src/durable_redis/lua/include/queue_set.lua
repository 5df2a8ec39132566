local Z, D, X, N, L = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
