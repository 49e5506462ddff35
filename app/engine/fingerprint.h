/*
 * fingerprint.h: who a model is, as facts that a session keeps and that loading compares.
 *
 * What a memory holds means something only to the model that computed it. The library compares the
 * shapes of layers itself; these facts tell apart models of one shape: the architecture, the name,
 * a hash of the file's metadata (keys, values, names and shapes of tensors), a hash of a sample of
 * the weights, the rope settings that were given beside the file, and adapters. The last two are
 * constants until the program has options for them; they stand there so that a session of today is
 * refused by a program that runs its model otherwise.
 *
 * The hashes tell files apart that differ by accident or by training, not those that somebody made
 * alike on purpose. The sample is a few hundred stretches spread over all tensors, so it costs
 * milliseconds however large the file is; a small model is hashed whole.
 */
#ifndef APP_FINGERPRINT_H
#define APP_FINGERPRINT_H

#include "cellar.h"
#include "engine/model.h"

#define FINGERPRINT_FACTS 6u

typedef struct fingerprint {
    cellar_note facts[FINGERPRINT_FACTS]; /* point into this struct and into the model's file */
    char metadata[17], weights[17];       /* 64 bits in hexadecimal */
} fingerprint;

/* Fill in the fingerprint; it must not be moved afterwards, nor outlive the model's file. */
void fingerprint_make(const model *m, fingerprint *out);

#endif /* APP_FINGERPRINT_H */
