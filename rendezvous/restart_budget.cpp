#include "rendezvous/restart_budget.hpp"

#include <string>

namespace cpprun::rendezvous {

void charge(RoundEnd& end, int restarts_left) {
  if (!end.charged || end.final) return;
  end.final = restarts_left <= 0;
  if (end.final) {
    end.sentence += "; no restarts left";
    return;
  }
  end.sentence += "; restarting all workers, " + std::to_string(restarts_left - 1) +
                  (restarts_left == 2 ? " restart left" : " restarts left");
}

}  // namespace cpprun::rendezvous
