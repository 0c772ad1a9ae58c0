// Scope guards.
#pragma once

namespace constrain {

template <class Action>
struct Leave {
  Action action;
  ~Leave() { action(); }
};
template <class Action>
Leave(Action) -> Leave<Action>;

}  // namespace constrain
