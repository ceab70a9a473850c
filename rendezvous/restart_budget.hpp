// What the end of a round costs. Pure.
#pragma once

#include "rendezvous/rendezvous_handler.hpp"

namespace cpprun::rendezvous {

// Makes an end that is charged final where no restart is left, and lets its sentence say what follows.
void charge(RoundEnd& end, int restarts_left);

}  // namespace cpprun::rendezvous
