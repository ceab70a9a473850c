// How the threads that LibTorch computes with wait for each other.
//
// OpenMP's threads spin for milliseconds at the end of each operation before they sleep. That is well where
// every thread has a core to itself; where other programs run too, the one thread that still computes waits
// for a core that another wastes, and training becomes slower by an order of magnitude.
#pragma once

namespace cpprun::trainer {

// Starts this program again with OMP_WAIT_POLICY=passive, as OpenMP reads that variable only while it is
// loaded, which is before main. Returns, having done nothing, where the user has chosen (OMP_WAIT_POLICY or
// GOMP_SPINCOUNT is set), where there is no thread to wait for (OMP_NUM_THREADS=1), or where the program
// cannot be started again. Call it before anything is opened or started.
void wait_without_spinning(char** argv);

}  // namespace cpprun::trainer
