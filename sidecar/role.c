/* SPDX-License-Identifier: Apache-2.0 */
#include "sidecar/role.h"
