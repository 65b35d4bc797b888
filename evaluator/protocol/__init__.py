"""How judge, runner and supervisor talk: messages, the control page, shared memory, and the gate on a device."""
