// What race.py asks of a peer that it loads as a shared library. All arrays are contiguous, [heads][n][d].
#pragma once

extern "C" {

struct PeerCell {
  int backward;  // else forward
  int causal;    // query i sees keys j <= i
  int bf16;      // q, k, v and o are bf16, else fp32
  int threads;
  long heads, n, d;
};

struct PeerArrays {
  const void *q, *k, *v;
  void* o;                // forward: written; backward: given
  const float *lse, *dO;  // backward
  float *dq, *dk, *dv;    // backward: written
};

// The library's name, version and what it says of itself.
const char* peer_about();
// Ways to do the cell, of which race.py takes the fastest: their number, 0 if it cannot be done, and the name of each.
int peer_variants(const PeerCell* cell);
const char* peer_variant_name(const PeerCell* cell, int variant);
// Everything that does not depend on the numbers is done here, not timed.
void* peer_make(const PeerCell* cell, int variant);
void peer_run(void* made, const PeerArrays* arrays);
void peer_free(void* made);

}  // extern "C"
