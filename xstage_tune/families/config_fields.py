"""What configs of every family are made of."""

from __future__ import annotations

STORES = "How bytes leave an SM: 16-byte stores of registers (st.v4), or bulk copies (tma)"
