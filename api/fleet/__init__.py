"""What schedulers and operators ask about hosts: health, actions, placement, audit."""
