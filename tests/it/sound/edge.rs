//! Floods, slow clients and forged requests cost other clients nothing.
