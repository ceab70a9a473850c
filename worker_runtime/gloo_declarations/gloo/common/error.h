// Nothing of this header is used by c10d/ProcessGroupGloo.hpp; see ../../README.md.
#pragma once
