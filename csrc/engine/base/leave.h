// Something to do at the end of a block, however it is left.
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
