"""Communication of judge, runner and supervisor: messages, the control page, shared memory, the gate on a device."""
