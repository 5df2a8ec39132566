local Z, D, X, N = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
